#include "optim/serial_region.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace ddp::optim {

// Without OpenMP, the number of threads of LibTorch's loops cannot be changed here.
#ifdef _OPENMP
SerialRegion::SerialRegion() : threads_(omp_get_max_threads()) {
  omp_set_num_threads(1);  // affects only loops that this thread starts
}
SerialRegion::~SerialRegion() {
  omp_set_num_threads(threads_);
}
#else
SerialRegion::SerialRegion() = default;
SerialRegion::~SerialRegion() = default;
#endif

}  // namespace ddp::optim
