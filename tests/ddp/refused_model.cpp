// Does not compile: refused_model_test.py looks at what the compiler says.
#include <ddprun/ddp/distributed_data_parallel.h>

struct NoModule {
  torch::Tensor forward(const torch::Tensor& x) { return x; }
};

void wrap(NoModule& net, const ddp::GroupHandle& group) {
  ddp::DistributedDataParallel<NoModule> model(net, group);
  model(torch::Tensor());
}
