"""What each page says, as plain values of bounded size: a template shows them, and `/api/v1` has them as JSON."""
