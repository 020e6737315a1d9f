"""Look inside a model: attention, attribution, interventions.

Everything starts from a `ForwardPass` (`model.forward_pass(text)`) and one mechanism, a `Tape` that reads and replaces the
tensors at named places. The model is unchanged afterwards.
"""
