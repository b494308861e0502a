"""Reading and writing weights: Hugging Face directories, GGUF files, PEFT adapters. Safetensors only, never pickle."""
