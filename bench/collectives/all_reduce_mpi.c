/* all_reduce.cpp in MPI: `all_reduce_mpi BYTES...`, compiled by each MPI's mpicc. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int count, char** arguments) {
  int rank;
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int argument = 1; argument < count; ++argument) {
    const long bytes = atol(arguments[argument]);
    const int elements = (int)(bytes / (long)sizeof(float));
    long repeats = (1L << 30) / (bytes > 0 ? bytes : 1);
    repeats = repeats < 8 ? 8 : repeats > 3000 ? 3000 : repeats;
    float* data = malloc((size_t)bytes + 1);
    const int run = bytes <= 65536 ? 10 : 1; /* calls that are timed together */
    const long samples = (repeats + run - 1) / run;
    double* times = malloc((size_t)samples * sizeof(double));
    for (int i = 0; i < elements; ++i) data[i] = 1;
    for (int i = 0; i < 5; ++i) MPI_Allreduce(MPI_IN_PLACE, data, elements, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    for (long i = 0; i < samples; ++i) {
      const double before = MPI_Wtime();
      for (int k = 0; k < run; ++k) {
        MPI_Allreduce(MPI_IN_PLACE, data, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      }
      times[i] = 1e6 * (MPI_Wtime() - before) / run;
    }
    qsort(times, (size_t)samples, sizeof(double), compare);
    if (rank == 0) {
      printf("%ld %.4f\n", bytes, times[samples / 2]);
      fflush(stdout);
    }
    free(times);
    free(data);
  }
  MPI_Finalize();
  return 0;
}
