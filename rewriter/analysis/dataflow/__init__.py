"""Which values flow where, through calls, attributes, containers and modules, to a fixed point."""
