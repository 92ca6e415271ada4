"""What trains: backward passes, optimizer steps, loops, schedules, and what is counted in them."""
