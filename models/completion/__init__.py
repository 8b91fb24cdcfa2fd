"""What declarations of incomplete kernel matrices share."""
