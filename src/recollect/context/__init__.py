"""What is sent to a model: tokens and the history view. Pure functions over values; nothing here touches a store."""
