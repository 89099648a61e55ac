// All operations between ranks. Every rank of the group must call the same ones in the same order, from one thread at a
// time; point_to_point.h is between two. Overview: docs/collectives.md.
#pragma once

#include <ddprun/comm/all_to_all.h>
#include <ddprun/comm/barrier.h>
#include <ddprun/comm/broadcast.h>
#include <ddprun/comm/gather.h>
#include <ddprun/comm/main_process.h>
#include <ddprun/comm/new_group.h>
#include <ddprun/comm/objects.h>
#include <ddprun/comm/point_to_point.h>
#include <ddprun/comm/reduce_value.h>
#include <ddprun/comm/reductions.h>
