"""The behavioural-canary audit: many policies trained with and without documents, scored and compared."""
