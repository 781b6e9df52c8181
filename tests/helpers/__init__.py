"""What tests share: servers, worker processes, and makers of odd files."""
