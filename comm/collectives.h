// All operations between ranks. Every rank of the group must call the same ones in the same order, from one thread at a
// time; point_to_point.h is between two. Overview: docs/collectives.md.
#pragma once

#include "comm/all_to_all.h"
#include "comm/barrier.h"
#include "comm/broadcast.h"
#include "comm/gather.h"
#include "comm/main_process.h"
#include "comm/new_group.h"
#include "comm/objects.h"
#include "comm/point_to_point.h"
#include "comm/reduce_value.h"
#include "comm/reductions.h"
