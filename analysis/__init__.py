"""What is made of checkpoints and results after training; never imported by the trainer. Here are the commands."""
