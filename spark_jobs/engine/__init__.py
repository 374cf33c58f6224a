"""What the jobs are made of: their options, what they read and print, pictures, who follows, and a Java."""
