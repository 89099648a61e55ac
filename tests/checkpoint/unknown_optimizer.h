// An optimizer of a program's own class, whose state has no form in checkpoints.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <memory>
#include <utility>
#include <vector>

namespace ddp::test {

struct UnknownOptions : torch::optim::OptimizerCloneableOptions<UnknownOptions> {
  void serialize(torch::serialize::InputArchive&) override {}
  void serialize(torch::serialize::OutputArchive&) const override {}
  double get_lr() const override { return lr; }
  void set_lr(const double value) override { lr = value; }
  double lr = 0.1;
};

class UnknownOptimizer : public torch::optim::Optimizer {
 public:
  explicit UnknownOptimizer(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::make_unique<UnknownOptions>()) {}
  torch::Tensor step(LossClosure) override { return {}; }
};

}  // namespace ddp::test
