package web

import "time"

// ListFor has pages look for jobs, and doctors for findings, for so long. No test is about the bound.
func ListFor(bound time.Duration) { listBound = bound }
