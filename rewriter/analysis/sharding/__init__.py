"""What a script does with weights that would not work once they are sharded (`migrate --strategy fsdp`)."""
