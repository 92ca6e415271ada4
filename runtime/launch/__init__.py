"""The `torchlift` command, and how it starts the processes of a job."""
