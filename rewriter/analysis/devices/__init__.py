"""Devices: where they are chosen, named, asked for, and what is moved there."""
