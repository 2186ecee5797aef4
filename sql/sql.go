// Package sql embeds the migrations, one set per owning service. Nothing
// else: queries are read by sqlc (sqlc.yaml) and come out as Go beside their
// user, and running migrations is package pg's.
//
// The invariant: a migration that has been committed is never edited; a change
// is a new file with the next number, and its first comment says why. To add an
// owner, add its folder and a function like Billing.
package sql

import (
	"embed"
	"io/fs"
)

//go:embed billing/migrations/*.sql
var files embed.FS // read-only

// Migrations are the schema of one owner. Owners may share a database: each
// keeps its own list of what has been applied.
type Migrations struct {
	Owner string
	Files fs.FS
}

// Billing is the schema of accounts, keys and the ledger.
func Billing() Migrations { return of("billing") }

func of(owner string) Migrations {
	sub, err := fs.Sub(files, owner+"/migrations")
	if err != nil {
		panic(err) // the path is constant and well formed
	}
	return Migrations{Owner: owner, Files: sub}
}
