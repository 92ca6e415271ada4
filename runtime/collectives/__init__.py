"""Operations over all processes, on whole trees of tensors at once."""
