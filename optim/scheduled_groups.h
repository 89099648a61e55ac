// An optimizer's parameter groups as schedules see them.
#pragma once

#include <torch/optim/optimizer.h>

#include <ddprun/schedules/schedule.h>

namespace ddp::optim {

/// The groups' learning rates and momenta (SGD's momentum, Adam's first beta, RMSprop's momentum); initial rates are
/// those of `previous`, as far as it has them.
schedules::Groups read_groups(torch::optim::Optimizer& optimizer, const schedules::Groups& previous);

/// Sets the groups' learning rates and momenta.
void write_groups(torch::optim::Optimizer& optimizer, const schedules::Groups& groups);

}  // namespace ddp::optim
