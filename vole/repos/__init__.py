"""What is hosted, pushed and intended. Never reads git objects."""
