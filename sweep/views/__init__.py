"""What people look at: everything here is made from records alone."""
