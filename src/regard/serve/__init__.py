"""`regard serve`: models behind HTTP, on one machine.

client ─HTTP─▶ API process                    ─Unix socket─▶ inference process
               gate, admission, routes                       tokenizers, models, a scheduler per model
               imports neither torch nor tokenizers          is restarted when it dies
"""
