package bus

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// The parts of a job's id, in bytes: when it was made, in milliseconds, so that what is
// written together lies together in the ledger's indexes; whose it is; and what makes
// it impossible to guess.
const (
	jobTime  = 6
	jobOwner = 10
	jobBytes = 32
)

// NewJob gives the id of a new job of an owner, which is its request's id too: 64
// hex digits that nobody can guess, and that name the owner.
func NewJob(owner string) string {
	var raw [jobBytes]byte
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(raw[:jobTime], ms[8-jobTime:])
	copy(raw[jobTime:], ownerMark(owner))
	// The standard reader never fails; it would end the process first.
	_, _ = rand.Read(raw[jobTime+jobOwner:])
	return hex.EncodeToString(raw[:])
}

// OwnedBy tells whether a job is of an owner. Others than owners name them, too.
func OwnedBy(job, owner string) bool {
	raw, err := hex.DecodeString(job)
	return err == nil && len(raw) == jobBytes && bytes.Equal(raw[jobTime:jobTime+jobOwner], ownerMark(owner))
}

func ownerMark(owner string) []byte {
	sum := sha256.Sum256([]byte(owner))
	return sum[:jobOwner]
}
