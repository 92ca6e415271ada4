"""What is recorded inside a traced process. Every module here patches one area of torch or python."""
