"""What the prefetch benchmark deploys: a function of its own file each."""
