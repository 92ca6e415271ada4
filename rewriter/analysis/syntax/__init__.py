"""The tree, its names and scopes, and what single nodes say by themselves."""
