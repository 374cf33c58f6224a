"""What the jobs are made of: their options, what they read and print, who follows, and a Java."""
