#!/bin/sh
echo "job under fence $LOCKSTEP_FENCE"
