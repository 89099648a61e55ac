// Every c10d header that this project uses, and every switch between torch versions. Only sources of comm/ and of the
// tests' support folder include it; no installed header does, since c10d's headers ask for gloo's and for build macros.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/headeronly/version.h>

#ifndef DDPRUN_TRY_NEWER_LIBTORCH
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11 && TORCH_VERSION_MINOR <= 15,
              "c10d's C++ headers change between versions: check every use of this header before adding one");
#endif
