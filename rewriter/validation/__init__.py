"""The emitted program, analysed anew and checked: what our edits must keep, whatever made them."""
