package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	clusterMasters = 3
	clusterSlots   = 16384
)

// startCluster starts a Redis Cluster of three masters without replicas, which share the slots evenly. It returns when
// all of them find the Cluster well.
func startCluster(ctx context.Context) (servers, error) {
	nodes, err := startServers(ctx, clusterMasters, true)
	if err != nil {
		return nil, err
	}
	if err := nodes.join(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the Cluster: %w", err), nodes.close())
	}
	return nodes, nil
}

// join makes a Cluster of the nodes.
func (s servers) join(ctx context.Context) error {
	host, port, err := net.SplitHostPort(s[0].addr)
	if err != nil {
		return err
	}
	for i, node := range s {
		first, last := clusterSlots*i/len(s), clusterSlots*(i+1)/len(s)-1
		if err := node.rdb.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			return err
		}
		// So that no two of them begin with the same.
		if err := node.rdb.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		if i > 0 {
			if err := node.rdb.Do(ctx, "CLUSTER", "MEET", host, port, s[0].bus).Err(); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return each(len(s), func(i int) error { return s[i].joined(ctx, len(s)) })
}

// joined waits until the node knows so many nodes, and that all slots are served.
func (s *server) joined(ctx context.Context, nodes int) error {
	for {
		info, err := s.rdb.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d\r", nodes)) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the node %s does not join: %w\n%s", s.addr, ctx.Err(), info)
		}
	}
}
