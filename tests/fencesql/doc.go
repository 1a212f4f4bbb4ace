// Package fencesql tests package lock/fence on real databases. It is in a module beside the library's, because of their drivers.
package fencesql
