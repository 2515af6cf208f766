"""What is deployed to be measured: each file is a function as a user would write it."""
