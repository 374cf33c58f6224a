"""What crosses between machines of hosts and watched actors, where both are one system."""
