// Everything a training program needs: `#include <ddp/ddp.h>`, link ddprun::ddp.
#pragma once

#include "checkpoint/checkpoint.h"
#include "comm/collectives.h"
#include "comm/failure_handlers.h"
#include "comm/manual_seed.h"
#include "comm/process_group.h"
#include "comm/report.h"
#include "data/batches.h"
#include "data/cifar10.h"
#include "ddp/distributed_data_parallel.h"
#include "monitor/metrics_file.h"
#include "monitor/progress_bar.h"
#include "monitor/summary_writer.h"
#include "samplers/distributed_sampler.h"
