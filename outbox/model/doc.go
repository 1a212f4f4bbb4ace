// Package model has the models of package outbox: how rows get from a database to Redis, each once. It is all tests. README.md says what they cover.
package model
