"""What a script asks at each step of a device that compiles its steps (`migrate --device tpu`)."""
