"""The audit: what is wrong with a script that is distributed already, by hand, with Accelerate, Fabric or torchlift."""
