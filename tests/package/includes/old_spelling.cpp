#include <comm/rank_info.h>
#include <ranks/job.h>

static_assert(sizeof(ddp::RankInfo) > 0 && sizeof(ddp::JobPlace) > 0);
