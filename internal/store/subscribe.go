package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// A Kind says what a message is for.
type Kind int

// The kinds.
const (
	Nothing    Kind = iota // it needs no answer
	Subscribed             // messages to the channel come from now on
	Work                   // there may be work, and no other worker was woken for it
	StandBy                // another worker was woken: look a little later whether it was there
	Look                   // the queue's settings may have changed
	Room                   // a queue that was full may have room
	Cancel                 // jobs that the session runs were cancelled: see Deliveries
)

// A Message is what comes over a subscription.
type Message struct {
	Kind    Kind
	Channel string
	list    string // of Cancel
}

// Deliveries returns those that a message of kind Cancel names: tokens by job ID.
func (m Message) Deliveries() map[string]int64 {
	tokens := make(map[string]int64)
	for pair := range slices.Chunk(strings.Fields(m.list), 2) {
		if len(pair) == 2 {
			tokens[pair[0]] = facts.TokenOf(pair[1])
		}
	}
	return tokens
}

// Server names the server that has the queue's keys, and returns a client to subscribe with there. In a Cluster it is
// the master of the queue's slot. Elsewhere all queues have the same.
func (cs *Channels) Server(ctx context.Context, sharded bool) (name string, rdb redis.UniversalClient, err error) {
	switch cluster, ok := cs.q.rdb.(*redis.ClusterClient); {
	case ok:
		master, err := cluster.MasterForKey(ctx, cs.q.keys.Idle)
		if err != nil {
			return "", nil, err
		}
		return master.Options().Addr, master, nil
	case sharded:
		return cs.q.name, cs.q.rdb, nil // a client of an unknown type: it finds the server by the channel
	}
	return "", cs.q.rdb, nil
}

// Control returns the channel on which all workers of the queue hear that its settings have changed.
func (cs *Channels) Control() string { return cs.q.keys.Control() }

// Room returns the channel on which producers hear that the queue may have room again. It has the name of the settings' key.
func (cs *Channels) Room() string { return cs.q.keys.Settings }

// End returns the channel on which those hear of the end of a job who wait for it.
func (cs *Channels) End(id string) string { return cs.q.keys.End(id) }

// Of returns the channel of one session, on which it is woken.
func (cs *Channels) Of(session string) string { return cs.q.keys.Channel(session) }

// Address returns what a session is registered by where it waits for wake-ups on its channel. sharded says that it is a channel of
// a slot in a Cluster.
func (cs *Channels) Address(session string, sharded bool) string {
	if sharded {
		return "s" + cs.q.keys.Channel(session)
	}
	return "p" + cs.q.keys.Channel(session)
}

// A Subscription hears messages of one server, over a connection of its own, until that fails or Close is called.
type Subscription struct {
	sub     *redis.PubSub
	sharded bool
}

// Subscribe returns a subscription to nothing. sharded says that sessions' channels are those of a slot in a Cluster.
func Subscribe(ctx context.Context, rdb redis.UniversalClient, sharded bool) *Subscription {
	return &Subscription{sub: rdb.Subscribe(ctx), sharded: sharded}
}

// Add subscribes to control channels and to channels of sessions. It doesn't wait for the answers, which are messages.
func (s *Subscription) Add(ctx context.Context, controls, sessions []string) error {
	if !s.sharded {
		return s.sub.Subscribe(ctx, slices.Concat(controls, sessions)...)
	}
	// All nodes of a Cluster have what is published on a channel that isn't sharded.
	if len(controls) > 0 {
		if err := s.sub.Subscribe(ctx, controls...); err != nil {
			return err
		}
	}
	for _, channel := range sessions { // of any slots: one call each
		if err := s.sub.SSubscribe(ctx, channel); err != nil {
			return err
		}
	}
	return nil
}

// Drop ends the subscription to channels of sessions.
func (s *Subscription) Drop(ctx context.Context, sessions []string) error {
	if !s.sharded {
		return s.sub.Unsubscribe(ctx, sessions...)
	}
	for _, channel := range sessions {
		if err := s.sub.SUnsubscribe(ctx, channel); err != nil {
			return err
		}
	}
	return nil
}

// Follow subscribes to channels of one slot, or of no slot if sharded isn't set, in one call. It doesn't wait for the answers, which are messages.
func (s *Subscription) Follow(ctx context.Context, channels []string) error {
	if s.sharded {
		return s.sub.SSubscribe(ctx, channels...)
	}
	return s.sub.Subscribe(ctx, channels...)
}

// Unfollow ends the subscription to channels of one slot, in one call.
func (s *Subscription) Unfollow(ctx context.Context, channels []string) error {
	if s.sharded {
		return s.sub.SUnsubscribe(ctx, channels...)
	}
	return s.sub.Unsubscribe(ctx, channels...)
}

// silence is how long a subscription that hears nothing waits before it asks the server whether it is there, and how long
// for the answer.
const silence = 3 * time.Second

// errMoved says that the server no longer has the slot of a channel.
var errMoved = errors.New("store: the server has ended the subscription to a channel")

// Next returns the next message. After an error the subscription hears nothing more. Drop's answers are errors too
// if wanted says that the channel is still of use: then the server has ended the subscription.
func (s *Subscription) Next(ctx context.Context, wanted func(channel string) bool) (Message, error) {
	for asked := false; ; {
		got, err := s.sub.ReceiveTimeout(ctx, silence)
		var late net.Error
		switch {
		case err == nil:
			asked = false
		case !asked && ctx.Err() == nil && errors.As(err, &late) && late.Timeout():
			if asked = true; s.sub.Ping(ctx) == nil {
				continue
			}
			return Message{}, err
		default:
			return Message{}, err
		}
		switch m := got.(type) {
		case *redis.Message:
			if list, ok := strings.CutPrefix(m.Payload, "cancel "); ok {
				return Message{Kind: Cancel, Channel: m.Channel, list: list}, nil
			}
			return Message{Kind: kindOf(m.Payload), Channel: m.Channel}, nil
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				return Message{Kind: Subscribed, Channel: m.Channel}, nil
			case "unsubscribe", "sunsubscribe":
				if wanted(m.Channel) {
					return Message{}, fmt.Errorf("%w: %s", errMoved, m.Channel)
				}
			}
		}
	}
}

func kindOf(payload string) Kind {
	switch payload {
	case "work":
		return Work
	case "standby":
		return StandBy
	case "look":
		return Look
	case "room":
		return Room
	}
	return Nothing
}

// Close ends the subscription. It may be called more than once, at any time.
func (s *Subscription) Close() { _ = s.sub.Close() }

// SeekServers has a client of a Cluster look again for its servers, after a subscription has failed.
func SeekServers(ctx context.Context, rdb redis.UniversalClient) {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}
