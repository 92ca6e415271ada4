"""The emitted program is analysed again and checked against invariants that every edit must keep."""
