"""Effects outside the process: files, folders, downloads, output, and who may have them."""
