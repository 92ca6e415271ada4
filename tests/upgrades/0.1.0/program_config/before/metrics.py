def right(output, target):
    return (output.argmax(1) == target).sum().item()
