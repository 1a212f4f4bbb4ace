package inspect

// DeadByErrorOf is DeadByError with another bound.
var DeadByErrorOf = (*Inspector).deadByError

// FlowJobsOf is FlowJobs with another bound.
var FlowJobsOf = (*Inspector).flowJobs
