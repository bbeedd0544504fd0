"""How a framework sees a batch: one folder for each framework, and the only place that imports it."""
