package codecs

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"

	"github.com/signalbox-go/signalbox"
)

// Sealed encrypts what another codec makes, by AES-GCM. A payload is bound to its job: to the kind and to the key of the
// payload, which is the job's effect key. So nobody who can write to Redis can put the payload of one job into another one, or
// change it. A job that is moved to another queue keeps that key, and still opens. The kind, the headers and the errors of a job are
// not encrypted.
//
// A payload begins with the name of its key. To rotate keys:
//
//  1. Give the new key to all workers, beside the old one.
//  2. Make the new key the one that schedulers encrypt with.
//  3. Take the old key away when no job of it is left, also no dead one that may be retried.
//
// A worker without a payload's key puts the job back. Nonces are random: rotate a key before it has encrypted 2^32 payloads.
type Sealed struct {
	inner   signalbox.Codec
	current string
	keys    map[string]cipher.AEAD
}

// NewSealed returns a codec that encrypts what inner makes with the key named current, and decrypts with any of the keys. A key has
// 16, 24 or 32 bytes, and a name of 1 to 255 bytes.
func NewSealed(inner signalbox.Codec, current string, keys map[string][]byte) (*Sealed, error) {
	s := &Sealed{inner, current, make(map[string]cipher.AEAD)}
	for name, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", name, err)
		}
		if s.keys[name], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("key %q: %w", name, err)
		}
	}
	if s.keys[current] == nil || len(current) == 0 || len(current) > 255 {
		return nil, fmt.Errorf("there is no key %q, or its name is not 1 to 255 bytes long", current)
	}
	return s, nil
}

// Encoding returns "sealed+" and the inner encoding.
func (s *Sealed) Encoding() string { return "sealed+" + s.inner.Encoding() }

// Encode encrypts what the inner codec makes.
func (s *Sealed) Encode(job *signalbox.Job, args any) ([]byte, error) {
	data, err := s.inner.Encode(job, args)
	if err != nil {
		return nil, err
	}
	payload := append([]byte{byte(len(s.current))}, s.current...)
	return s.keys[s.current].Seal(payload, nil, data, bound(job, s.current)), nil
}

// Decode decrypts the payload for the inner codec.
func (s *Sealed) Decode(job *signalbox.Job, payload []byte, args any) error {
	if len(payload) == 0 || len(payload) <= int(payload[0]) {
		return errors.New("the payload is too short for the name of its key")
	}
	name, sealed := string(payload[1:1+payload[0]]), payload[1+payload[0]:]
	key := s.keys[name]
	if key == nil {
		return fmt.Errorf("%w: there is no key %q", signalbox.ErrUnknownEncoding, name)
	}
	data, err := key.Open(nil, nil, sealed, bound(job, name))
	if err != nil {
		return fmt.Errorf("the payload is not what was sealed for this job with key %q: %w", name, err)
	}
	return s.inner.Decode(job, data, args)
}

// bound returns what a payload is bound to. None of the three has a zero byte but the last one.
func bound(job *signalbox.Job, key string) []byte {
	return []byte(job.Kind + "\x00" + job.EffectKey() + "\x00" + key)
}
