#include <ATen/Parallel.h>

#include <iostream>

int main() {
  std::cout << at::get_parallel_info();
}
