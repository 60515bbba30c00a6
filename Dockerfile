# headway on the processor, from the wheel that `make release` leaves in dist/:
# docker build --tag headway --build-arg EXTRAS=serve,export . && docker run --rm --volume "$PWD:/work" headway demo
FROM python:3.13-slim
ARG EXTRAS=serve,export
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 HEADWAY_CACHE=/tmp/headway HOME=/tmp
COPY constraints.txt dist/*.whl /packages/
RUN python -m pip install $(grep '^torch==' /packages/constraints.txt) && \
    python -m pip install --constraint /packages/constraints.txt "$(ls /packages/headway-*.whl)[$EXTRAS]"
RUN mkdir /work && chmod 1777 /work
USER nobody
WORKDIR /work
EXPOSE 5000
ENTRYPOINT ["headway"]
CMD ["--help"]
